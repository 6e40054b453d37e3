#!/bin/bash
#SBATCH -N 2
#SBATCH --network=single_node_vni,tcs,anything
#SBATCH --core-spec=8 --threads-per-core=1
#SBATCH --export=

srun --network=disable_rdzv_get --ntasks-per-node=1 ./ring
