#!/bin/bash
#SBATCH -J "a job"
#SBATCH --comment='two words'
#SBATCH --mail-type="END,FAIL"
#SBATCH --output="out %j.txt"

srun -J "first step" -o "step %j.%s.txt" -e 'err %t' ./run
