# rpc/ as it is, in the world of this folder: its threads, its clock, its network.
foreach(name pthread_create pthread_join pthread_detach pthread_mutex_lock pthread_mutex_unlock pthread_cond_wait
		pthread_cond_clockwait pthread_cond_signal pthread_cond_broadcast clock_gettime tutti_send tutti_recv
		tutti_group_begin tutti_group_end tutti_work_wait tutti_work_test tutti_work_cancel tutti_work_release tutti_comm_dup
		tutti_comm_status tutti_comm_abort tutti_comm_destroy tutti_rank tutti_size libtutti_error_agree)
	target_link_options(test_rpc_states PRIVATE LINKER:--wrap=${name})
endforeach()
target_link_libraries(test_rpc_states PRIVATE tests_collectives tests_core_memory)
