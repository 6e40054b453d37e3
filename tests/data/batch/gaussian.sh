#!/bin/tcsh
#SBATCH -J g16
#SBATCH -n 1 -c 16
#SBATCH --mem=32GB
#SBATCH --tmp=10G
#SBATCH -t 120
#SBATCH -D /tmp
setenv GAUSS_SCRDIR /tmp/$SLURM_JOB_ID
g16 < in.com > out.log
