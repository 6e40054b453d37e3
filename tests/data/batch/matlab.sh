#!/bin/bash
#SBATCH --licenses=matlab:1
#SBATCH --ntasks=1
#SBATCH --mem=8000
#SBATCH --time=1:00:00
#SBATCH --export=ALL,MLM_LICENSE_FILE=/opt/lic

matlab -batch "run(1)"
