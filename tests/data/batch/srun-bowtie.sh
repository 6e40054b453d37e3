#!/bin/bash
#SBATCH --job-name=align
#SBATCH --array=1-96%12
#SBATCH -c 8
#SBATCH --mem=32gb
#SBATCH --output=logs/align_%A_%a.out
#SBATCH --error=logs/align_%A_%a.err

SAMPLE=$(sed -n "${SLURM_ARRAY_TASK_ID}p" samples.txt)
srun --ntasks=1 --cpus-per-task=$SLURM_CPUS_PER_TASK bowtie2 -p $SLURM_CPUS_PER_TASK -x hg38 -U $SAMPLE.fq -S $SAMPLE.sam
