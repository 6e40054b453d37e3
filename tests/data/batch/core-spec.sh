#!/bin/bash
#SBATCH --core-spec=2
#SBATCH --exclusive
#SBATCH --nodes=2

srun ./solver
