# Kernels for GPUs, as an image that cuda/kernels/kernels_image.c takes into the library, or into a program of an example.
# Without nvcc the image is a short text, and the library says so when a device is used.
set(TUTTI_CUDA_ARCHITECTURES 80 90 100 CACHE STRING "GPUs that kernels are compiled for; later ones take PTX")
if(TUTTI_CUDA)
	if(DEFINED ENV{CUDACXX})
		set(TUTTI_NVCC $ENV{CUDACXX} CACHE FILEPATH "nvcc")
	endif()
	find_program(TUTTI_NVCC nvcc PATHS /usr/local/cuda/bin)
endif()
if(NOT TUTTI_CUDA OR NOT TUTTI_NVCC)
	message(STATUS "no kernels for GPUs: there is no nvcc, or TUTTI_CUDA is OFF")
endif()

# tutti_kernels(NAME FILE.cu HEADERS...): an image for the targets of this folder. HEADERS are patterns.
function(tutti_kernels name source)
	if(NOT TUTTI_CUDA OR NOT TUTTI_NVCC)
		return()
	endif()
	file(REAL_PATH ${TUTTI_NVCC} nvcc)
	get_filename_component(cuda_tools ${nvcc} DIRECTORY)
	file(RELATIVE_PATH kernels ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/${source})
	set(image ${CMAKE_CURRENT_BINARY_DIR}/${name})
	set(script ${PROJECT_SOURCE_DIR}/cmake/build_kernels.sh)
	file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cuda/kernels/*.h ${ARGN})
	# What takes the longest comes first: ninja begins with it.
	foreach(step ptx90 ptx)
		set(ptx ${image}.ptx)
		if(step STREQUAL ptx90)
			set(ptx ${image}.90.ptx)
		endif()
		add_custom_command(OUTPUT ${ptx} COMMAND sh ${script} ${step} ${cuda_tools} ${PROJECT_SOURCE_DIR} ${kernels} ${image}
			DEPENDS ${headers} ${source} ${PROJECT_SOURCE_DIR}/core/memory/small_float.h ${PROJECT_SOURCE_DIR}/include/tutti/tutti.h
				${script}
			COMMENT "Compiling ${kernels} for GPUs, ${step}" VERBATIM)
	endforeach()
	foreach(architecture IN LISTS TUTTI_CUDA_ARCHITECTURES)
		set(ptx ${image}.ptx)
		if(architecture GREATER_EQUAL 90)
			set(ptx ${image}.90.ptx)
		endif()
		set(part ${image}.sm_${architecture})
		add_custom_command(OUTPUT ${part}.cubin ${part}.resources COMMAND sh ${script} cubin ${cuda_tools} ${image} ${architecture}
			DEPENDS ${ptx} ${script} COMMENT "Compiling ${kernels} for sm_${architecture}" VERBATIM)
		list(APPEND parts ${part}.cubin ${part}.resources)
	endforeach()
	add_custom_command(OUTPUT ${image}.fatbin BYPRODUCTS ${image}.resources
		COMMAND sh ${script} fatbin ${cuda_tools} ${image} ${TUTTI_CUDA_ARCHITECTURES}
		DEPENDS ${image}.ptx ${image}.90.ptx ${parts} ${script} COMMENT "Packing ${kernels}" VERBATIM)
	set_source_files_properties(${PROJECT_SOURCE_DIR}/cuda/kernels/kernels_image.c PROPERTIES
		OBJECT_DEPENDS ${image}.fatbin COMPILE_DEFINITIONS CUDA_KERNELS_IMAGE="${image}.fatbin")
endfunction()
tutti_kernels(kernels cuda/kernels/kernels.cu)

# Of its own, since a target's files wait for all that one of them is made of.
add_library(tutti_kernels_image OBJECT cuda/kernels/kernels_image.c)
target_link_libraries(tutti_kernels_image PRIVATE tutti_flags)
