#!/bin/bash
#SBATCH --reservation=class
#SBATCH --account=phys101
#SBATCH --qos=normal
#SBATCH --wckey=course
#SBATCH -t 10

./exercise
