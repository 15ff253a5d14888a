# The driver's own tests link it; see cuda/fake.cmake.
foreach(source IN LISTS sources)
	if(source MATCHES "^cuda/driver/")
		get_filename_component(name ${source} NAME_WE)
		target_link_libraries(${name} PRIVATE fake_cuda)
	endif()
endforeach()
