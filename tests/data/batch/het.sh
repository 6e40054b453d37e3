#!/bin/bash
#SBATCH --ntasks=1 --mem=16G
#SBATCH hetjob
#SBATCH --ntasks=16 --cpus-per-task=2 --mem-per-cpu=1G

srun --het-group=0 ./head
