#!/bin/bash
#SBATCH -L ansys@srv:4,matlab
#SBATCH --ntasks=8
#SBATCH --ntasks-per-node=4
#SBATCH --dependency=singleton
fluent 3ddp -t$SLURM_NTASKS -cnf=hosts -g -i in.jou
