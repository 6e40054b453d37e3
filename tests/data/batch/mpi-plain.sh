#!/bin/bash
#SBATCH --ntasks=64
#SBATCH --time=30
#SBATCH --mem-per-cpu=2G

srun ./heat 2048
