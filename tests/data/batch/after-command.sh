#!/bin/bash
#SBATCH -n 2
module load x
#SBATCH -n 5
true
