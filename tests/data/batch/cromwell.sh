#!/bin/bash
#SBATCH -J cromwell_1
#SBATCH -D /tmp
#SBATCH -o /tmp/stdout -e /tmp/stderr
#SBATCH -t 600 -p main
#SBATCH -c 2
#SBATCH --mem-per-cpu 1000

/bin/bash script
