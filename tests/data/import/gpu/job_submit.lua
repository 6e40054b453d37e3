function slurm_job_submit(job_desc, part_list, submit_uid) return slurm.SUCCESS end
