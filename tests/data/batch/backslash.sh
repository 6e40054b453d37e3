#!/bin/bash
#SBATCH --job-name=one \
#SBATCH --ntasks=2
true
