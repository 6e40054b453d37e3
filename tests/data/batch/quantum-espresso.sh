#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=16
#SBATCH --cpus-per-task=4
#SBATCH --extra-node-info=2:*:1
#SBATCH -t 90

srun pw.x -in scf.in
