#!/bin/bash
#SBATCH -p gpu
#SBATCH --gres=gpu:1
#SBATCH -c 4
#SBATCH --mem 32G

srun --pty --overlap nvidia-smi &
srun --overlap ollama serve
