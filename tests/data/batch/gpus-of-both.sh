#!/bin/bash
#SBATCH --gpus=4 --gpus-per-node=2
true
