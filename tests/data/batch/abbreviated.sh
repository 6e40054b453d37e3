#!/bin/bash
#SBATCH --part=main
#SBATCH --job=short
#SBATCH --ntasks-per-n=4
#SBATCH --cpus-per-t=2
#SBATCH --dep=singleton

srun hostname
