#!/bin/bash
#SBATCH -J orca
#SBATCH -n 16
#SBATCH -N 1
#SBATCH --mem=60GB
#SBATCH -t 2-00:00:00
#SBATCH -e orca.e%j
#SBATCH -o orca.o%j

cd $SLURM_SUBMIT_DIR
srun -n 1 --cpu-bind=none $ORCA/orca job.inp > job.out
