#!/bin/bash
#SBATCH --mail-type=NONE
#SBATCH --ntasks=1

true
