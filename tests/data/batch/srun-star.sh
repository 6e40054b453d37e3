#!/bin/bash
#SBATCH --cpus-per-task=16
#SBATCH --mem=40G
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --time=05:00:00
#SBATCH --chdir=/tmp

time srun STAR --runThreadN ${SLURM_CPUS_PER_TASK:-1} --genomeDir idx --readFilesIn r1.fq r2.fq
