#!/bin/bash
#SBATCH --begin=now+1hour
#SBATCH --deadline=now+3days
#SBATCH --time=60
#SBATCH --time-min=10
#SBATCH --nice=50

./later
