#!/bin/bash
#SBATCH --hint=memory_bound
#SBATCH --ntasks=8
#SBATCH --sockets-per-node=2
#SBATCH --cores-per-socket=4

srun ./stream
