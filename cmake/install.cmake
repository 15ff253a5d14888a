# What `cmake --install` puts where: headers, the libraries, tuttirun and the perf programs, .pc files, the
# CMake package, manual pages, and the documents with the small programs. All of it may be moved afterwards. A component
# is a Debian package (packages.cmake).
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Tutti)
install(DIRECTORY include/tutti DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
foreach(library tutti:runtime tutti_rpc:rpc tutti_train:train)
	string(REPLACE ":" ";" library ${library})
	list(GET library 1 component)
	list(GET library 0 library)
	install(TARGETS ${library} ${library}_static EXPORT TuttiTargets
		LIBRARY COMPONENT ${component} NAMELINK_COMPONENT dev ARCHIVE COMPONENT dev)
endforeach()
install(EXPORT TuttiTargets NAMESPACE Tutti:: DESTINATION ${package_dir} COMPONENT dev)
configure_package_config_file(cmake/TuttiConfig.cmake.in TuttiConfig.cmake
	INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(TuttiConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/TuttiConfig.cmake
	${CMAKE_CURRENT_BINARY_DIR}/TuttiConfigVersion.cmake DESTINATION ${package_dir} COMPONENT dev)

# Pages link each other, so they lie as they do here.
set(doc_dir ${CMAKE_INSTALL_DATADIR}/doc/tutti)
install(FILES README.md LICENSE DESTINATION ${doc_dir} COMPONENT dev)
install(FILES perf/README.md DESTINATION ${doc_dir}/perf COMPONENT dev)
install(DIRECTORY docs DESTINATION ${doc_dir} COMPONENT dev)
install(DIRECTORY examples/calls examples/kubernetes examples/link examples/python examples/sweep examples/tutorial DESTINATION ${doc_dir}/examples COMPONENT dev)

# Where Debian's Python looks, below /usr; elsewhere for PYTHONPATH.
install(DIRECTORY bindings/python/tutti DESTINATION lib/python3/dist-packages COMPONENT python
	PATTERN __pycache__ EXCLUDE)

# The .pc files find their prefix from where they are: as many steps up as the library folder is deep.
set(pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX
	BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}/${pc_dir} OUTPUT_VARIABLE pc_up)
set(pc_json "")
if(JANSSON_FOUND)
	set(pc_json " -ljansson")
endif()
# tutti_pc(FILE DESCRIPTION LIBRARY REQUIRES PRIVATE)
function(tutti_pc file pc_description pc_library pc_requires pc_private)
	set(pc_name ${file})
	configure_file(cmake/tutti.pc.in ${file}.pc @ONLY)
	install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${file}.pc DESTINATION ${pc_dir} COMPONENT dev)
endfunction()
tutti_pc(tutti "Collective communication for training code" tutti "" "-lsodium${pc_json} -lpthread -lm")
tutti_pc(tutti-rpc "Tutti: calls of functions on other ranks" tutti_rpc "tutti = ${PROJECT_VERSION}" "-lpthread")
tutti_pc(tutti-train "Tutti: data-parallel, sharded and pipeline training" tutti_train "tutti-rpc = ${PROJECT_VERSION}" "${pc_json} -lpthread -lm")

get_property(programs GLOBAL PROPERTY TUTTI_INSTALLED_PROGRAMS)
if(programs)
	install(TARGETS ${programs} RUNTIME COMPONENT tools)
endif()

include(cmake/manual.cmake)
if(PROJECT_IS_TOP_LEVEL)
	include(cmake/packages.cmake)
endif()
