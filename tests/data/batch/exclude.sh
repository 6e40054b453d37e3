#!/bin/bash
#SBATCH --nodelist=n[1-4],n7
#SBATCH --exclude=n9,n[11-12]
#SBATCH --nodes=5

srun hostname
