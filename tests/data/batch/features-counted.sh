#!/bin/bash
#SBATCH -N 4
#SBATCH --constraint=[rack1*2&rack2*2]
true
