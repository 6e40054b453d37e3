#!/bin/bash
#SBATCH --ntasks=2	# behind a tab
#SBATCH --time=10#at once
#SBATCH --mem=1G 

srun hostname
