# The kernels for GPUs, as an image that cuda/kernels/kernels_image.c takes into the library. Without nvcc the image is a
# short text, and the library says so when a device is used.
set(TUTTI_CUDA_ARCHITECTURES 80 90 100 CACHE STRING "GPUs that kernels are compiled for; later ones take PTX")
if(TUTTI_CUDA)
	if(DEFINED ENV{CUDACXX})
		set(TUTTI_NVCC $ENV{CUDACXX} CACHE FILEPATH "nvcc")
	endif()
	find_program(TUTTI_NVCC nvcc PATHS /usr/local/cuda/bin)
endif()
if(TUTTI_CUDA AND TUTTI_NVCC)
	file(REAL_PATH ${TUTTI_NVCC} nvcc)
	get_filename_component(cuda_tools ${nvcc} DIRECTORY)
	set(kernels ${CMAKE_CURRENT_BINARY_DIR}/kernels)
	file(GLOB kernel_sources CONFIGURE_DEPENDS cuda/kernels/*.h cuda/kernels/*.cu)
	add_custom_command(OUTPUT ${kernels}.fatbin BYPRODUCTS ${kernels}.ptx ${kernels}.resources
		COMMAND sh ${PROJECT_SOURCE_DIR}/cmake/build_kernels.sh ${cuda_tools} ${PROJECT_SOURCE_DIR} ${kernels}
			${TUTTI_CUDA_ARCHITECTURES}
		DEPENDS ${kernel_sources} memory/small_float.h include/tutti/tutti.h cmake/build_kernels.sh
		COMMENT "Compiling kernels for GPUs" VERBATIM)
	set_source_files_properties(cuda/kernels/kernels_image.c PROPERTIES
		OBJECT_DEPENDS ${kernels}.fatbin COMPILE_DEFINITIONS CUDA_KERNELS_IMAGE="${kernels}.fatbin")
else()
	message(STATUS "no kernels for GPUs: there is no nvcc, or TUTTI_CUDA is OFF")
endif()
