#!/bin/bash
#SBATCH --ntasks=32 --mem-per-cpu=3800M
#SBATCH --time=3-0
#SBATCH --mail-type=begin  # lower case
#SBATCH --mail-type=end
#SBATCH --mail-user=$USER

srun simpleFoam -parallel
