# The same programs with a peer behind the calls of tutti.h: <peer>_<collective>_perf, for every peer that is
# here. Not installed.

# peer_programs(PEER collective...): of PEER's objects and the driver.
function(peer_programs peer)
	foreach(collective IN LISTS ARGN)
		add_executable(${peer}_${collective}_perf ${collective}_perf.c)
		target_link_libraries(${peer}_${collective}_perf PRIVATE perf_${peer} perf_driver m)
	endforeach()
endfunction()

# mpi_programs(PEER NAME OPTION SHOWS): for the MPI of that name, whose compiler wrapper given OPTION says SHOWS. Debian
# has both, as mpicc.openmpi and mpicc.mpich; elsewhere mpicc is one of them.
function(mpi_programs peer name option shows)
	find_program(TUTTI_MPICC_${peer} NAMES mpicc.${peer} mpicc)
	find_program(TUTTI_MPIRUN_${peer} NAMES mpirun.${peer} mpirun)
	mark_as_advanced(TUTTI_MPICC_${peer} TUTTI_MPIRUN_${peer})
	if(TUTTI_MPICC_${peer})
		execute_process(COMMAND ${TUTTI_MPICC_${peer}} ${option} OUTPUT_VARIABLE version ERROR_QUIET)
		execute_process(COMMAND ${TUTTI_MPICC_${peer}} -show OUTPUT_VARIABLE line ERROR_QUIET)
	endif()
	# "gcc -I... -L... -l...": folders for the compiler, the rest for the linker.
	separate_arguments(words UNIX_COMMAND "${line}")
	set(folders ${words})
	list(FILTER folders INCLUDE REGEX "^-I")
	list(TRANSFORM folders REPLACE "^-I" "")
	list(FILTER words INCLUDE REGEX "^-(L|l|Wl,)")
	# Debian's openmpi-bin alone has a compiler wrapper, too.
	find_path(TUTTI_MPI_H_${peer} mpi.h HINTS ${folders})
	mark_as_advanced(TUTTI_MPI_H_${peer})
	if(NOT version MATCHES "${shows}" OR NOT TUTTI_MPIRUN_${peer} OR NOT TUTTI_MPI_H_${peer})
		message(STATUS "No ${name} here: ${peer}_*_perf are left out.")
		return()
	endif()

	get_filename_component(launcher ${TUTTI_MPIRUN_${peer}} NAME)
	add_library(perf_${peer} OBJECT mpi.c)
	target_link_libraries(perf_${peer} PUBLIC perf_driver ${words})
	target_include_directories(perf_${peer} SYSTEM PRIVATE ${folders})
	target_compile_definitions(perf_${peer} PRIVATE MPIRUN="${launcher}")
	peer_programs(${peer} ${collectives})
endfunction()

mpi_programs(openmpi "Open MPI" -showme:version "Open MPI")
mpi_programs(mpich "MPICH" -v "for MPICH")

# Gloo, which is C++. Its package says 0.5.0 since years, so Debian's version stands beside that.
find_package(Gloo QUIET CONFIG)
include(CheckLanguage)
check_language(CXX)
if(Gloo_FOUND AND CMAKE_CXX_COMPILER)
	enable_language(CXX)
	set(CMAKE_CXX_FLAGS "${CMAKE_CXX_FLAGS} ${CMAKE_C_FLAGS}") # sanitizers
	execute_process(COMMAND dpkg-query -W -f "\${Version}" libgloo-dev
		OUTPUT_VARIABLE package ERROR_QUIET RESULT_VARIABLE failed)
	if(package AND NOT failed)
		set(package " (Debian ${package})")
	endif()
	add_library(perf_gloo OBJECT gloo.cc)
	target_compile_features(perf_gloo PRIVATE cxx_std_17)
	target_compile_options(perf_gloo PRIVATE -Wall -Wextra -Wshadow $<$<BOOL:${TUTTI_WERROR}>:-Werror>)
	target_compile_definitions(perf_gloo PRIVATE GLOO_PACKAGE="${package}" _GNU_SOURCE)
	target_include_directories(perf_gloo PRIVATE ${PROJECT_SOURCE_DIR}/include)
	target_link_libraries(perf_gloo PUBLIC gloo)
	# The one that Gloo has is an older class, made for one pair of buffers.
	set(of_gloo ${collectives})
	list(REMOVE_ITEM of_gloo reduce_scatter)
	peer_programs(gloo ${of_gloo})
	foreach(collective IN LISTS of_gloo)
		set_target_properties(gloo_${collective}_perf PROPERTIES LINKER_LANGUAGE CXX)
	endforeach()
else()
	message(STATUS "No Gloo here: gloo_*_perf are left out.")
endif()
