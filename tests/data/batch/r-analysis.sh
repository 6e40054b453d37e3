#!/bin/bash
#SBATCH --cpus-per-task=4
#SBATCH --mem=16gb
#SBATCH --time=0:30:0
#SBATCH --job-name=glm
#SBATCH --comment="third try, with weights"

Rscript fit.R
