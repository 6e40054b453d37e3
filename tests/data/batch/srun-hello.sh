#!/bin/bash
#SBATCH --ntasks=4

srun echo "hello from $(hostname)"
