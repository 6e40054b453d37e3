#!/bin/bash
#SBATCH -n 1
#SBATCH -c 16
#SBATCH --time=6:00:00

srun -c 16 samtools sort -@ 16 in.bam | samtools view -h - > out.sam && srun -n1 gzip out.sam
