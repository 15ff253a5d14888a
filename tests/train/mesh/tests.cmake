# A rank dies at one of its calls.
foreach(name all_reduce all_gather work_wait)
	target_link_options(test_mesh_deaths PRIVATE LINKER:--wrap=tutti_${name})
endforeach()
