#!/bin/bash
#SBATCH --job-name=gpt
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=96
#SBATCH --gres=gpu:8
#SBATCH --hint=nomultithread
#SBATCH --exclusive
#SBATCH --time 20:00:00
#SBATCH --output=%x-%j.out

MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
export CMD="python pretrain.py"
srun --jobid $SLURM_JOBID bash -c 'python -m torch.distributed.launch --nproc_per_node 8 \
    --nnodes $SLURM_NNODES --node_rank $SLURM_PROCID pretrain.py'
