#!/bin/bash
#SBATCH --ntasks=40
#SBATCH --mem-per-cpu=2G
#SBATCH --time=08:00:00
#SBATCH --mail-type=NONE

while read -r line; do
    srun --exact -N1 -n1 --mem-per-cpu=2G --output=task-%J.out bash -c "$line" &
done < tasks.txt
wait
