#!/bin/bash
#SBATCH --gpus=a100:2,h100:1
#SBATCH --ntasks=1
#SBATCH --gpu-freq=medium,memory=high

nvidia-smi
