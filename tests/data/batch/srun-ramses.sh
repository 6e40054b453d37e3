#!/bin/bash
#SBATCH --nodes=3
#SBATCH --ntasks=30
#SBATCH --ntasks-per-node=10
#SBATCH --ntasks-per-socket=5
#SBATCH --sockets-per-node=2
#SBATCH --profile=none
#SBATCH --acctg-freq=30

srun --acctg-freq=task=10 --mem-bind=local -l ./ramses3d run.nml
