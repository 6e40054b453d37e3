#!/bin/bash
#=
#SBATCH -n 2
=#
true
