# `cmake --install build --component metp [--prefix DIR]` and `cpack --config build/CPackConfig.cmake` (a Debian package): the
# programs, the units of deploy/systemd, examples; the package alone also options in /etc. The module for GPUs is a component
# of its own, metp-cuda, since no Debian package has the libraries that it needs.
include(GNUInstallDirs)

install(TARGETS metp-coordinator metp-worker metp-rank metpctl RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT metp)
# Units name the programs by the prefix, which is known when they are installed.
install(CODE "
  get_filename_component(METP_BIN \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\" ABSOLUTE)
  foreach(unit IN ITEMS metp-coordinator.service metp-worker@.service)
    configure_file(\"${CMAKE_SOURCE_DIR}/deploy/systemd/\${unit}.in\"
                   \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/systemd/system/\${unit}\" @ONLY)
  endforeach()" COMPONENT metp)
install(FILES deploy/systemd/metp.sysusers DESTINATION lib/sysusers.d RENAME metp.conf COMPONENT metp)
foreach(service IN ITEMS metp-coordinator metp-worker)
  install(FILES deploy/systemd/${service}.default DESTINATION /etc/default RENAME ${service} COMPONENT metp-defaults)
endforeach()
install(DIRECTORY deploy/examples/ DESTINATION ${CMAKE_INSTALL_DATADIR}/metp/examples COMPONENT metp)
if(METP_HAS_CUDA)
  install(TARGETS metp-cuda LIBRARY DESTINATION lib/metp COMPONENT metp-cuda)
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME metp)
set(CPACK_PACKAGE_CONTACT "METP maintainers <metp@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_COMPONENTS_ALL metp metp-defaults)
set(CPACK_STRIP_FILES TRUE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "adduser | systemd")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
    ${CMAKE_SOURCE_DIR}/deploy/systemd/postinst ${CMAKE_SOURCE_DIR}/deploy/systemd/prerm
    ${CMAKE_SOURCE_DIR}/deploy/systemd/postrm ${CMAKE_BINARY_DIR}/conffiles)
file(WRITE ${CMAKE_BINARY_DIR}/conffiles "/etc/default/metp-coordinator\n/etc/default/metp-worker\n")
include(CPack)
