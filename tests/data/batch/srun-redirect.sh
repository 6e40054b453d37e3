#!/bin/bash
#SBATCH -n 4

srun -i none -o /dev/null ./quiet
srun --input=none --output=none --error=%j-%t.err ./noisy
srun --input in.txt cat
