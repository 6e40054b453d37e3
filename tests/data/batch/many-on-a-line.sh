#!/bin/bash
#SBATCH -N 1 -n 4 -c 2 --mem 4G -t 10 -J all
#SBATCH -p main -A acct

srun hostname
