#!/bin/bash
#SBATCH --job-name='single quotes'
#SBATCH --output="with blanks %j.txt"
#SBATCH --comment=back\ slash

true
