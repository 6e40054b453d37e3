#!/bin/bash
#SBATCH --delay-boot=10
#SBATCH --power=level
#SBATCH --mcs-label=open
#SBATCH --ignore-pbs

true
