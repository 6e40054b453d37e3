#!/bin/bash
#SBATCH --partition=compute
#SBATCH --nodes=2-4
#SBATCH --use-min-nodes
#SBATCH --exclusive
#SBATCH --time=06:00:00

srun namd2 in.conf
