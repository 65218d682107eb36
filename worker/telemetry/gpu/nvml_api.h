#pragma once

// The part of NVIDIA's management library (NVML, libnvidia-ml.so.1) that is used here, declared by its public interface
// (docs.nvidia.com/deploy/nvml-api), so that nothing of NVIDIA's is needed to build. Layouts and numbers are the library's.

namespace metp::nvml {

using Result = int;
inline constexpr Result kSuccess = 0, kNotSupported = 3, kNoPermission = 4, kNotFound = 6,
                        kInsufficientSize = 7, kDriverNotLoaded = 9, kTimeout = 10, kGpuIsLost = 15,
                        kResetRequired = 16, kLibraryMismatch = 18;

using Device = struct nvmlDevice_st*;
using EventSet = struct nvmlEventSet_st*;

struct Memory {  // nvmlMemory_v2_t
  unsigned version;
  unsigned long long total, reserved, free, used;
};
inline constexpr unsigned kMemoryVersion = sizeof(Memory) | 2u << 24;

struct ProcessInfo {  // nvmlProcessInfo_v2_t
  unsigned pid;
  unsigned long long memory;  // kNotAvailable where the driver does not say
  unsigned gpu_instance, compute_instance;
};
inline constexpr unsigned long long kNotAvailable = ~0ull;

struct PciInfo {  // nvmlPciInfo_t
  char old_bus_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

struct EventData {  // nvmlEventData_t
  Device device;
  unsigned long long type, data;  // data of kXidCriticalError: the Xid
  unsigned gpu_instance, compute_instance;
};
inline constexpr unsigned long long kXidCriticalError = 8;

inline constexpr unsigned kTextLength = 96;            // of the longest: UUID and name
inline constexpr int kUncorrected = 1, kVolatile = 0;  // ECC errors, since the driver was loaded
inline constexpr int kComputeProhibited = 2;           // nvmlComputeMode_t
inline constexpr unsigned kMigEnabled = 1;

struct Functions {
  Result (*init)();
  Result (*shutdown)();
  const char* (*error_string)(Result);
  Result (*driver_version)(char*, unsigned length);
  Result (*cuda_version)(int*);  // 1000 times the major number plus 10 times the minor
  Result (*count)(unsigned*);
  Result (*by_index)(unsigned, Device*);
  Result (*uuid)(Device, char*, unsigned length);
  Result (*name)(Device, char*, unsigned length);
  Result (*pci)(Device, PciInfo*);
  Result (*capability)(Device, int* major, int* minor);
  Result (*compute_mode)(Device, int*);
  Result (*mig_mode)(Device, unsigned* current, unsigned* pending);
  Result (*memory)(Device, Memory*);
  Result (*processes)(Device, unsigned* count, ProcessInfo*);
  Result (*ecc_errors)(Device, int type, int counter, unsigned long long*);
  Result (*event_set_create)(EventSet*);
  Result (*event_set_free)(EventSet);
  Result (*event_set_wait)(EventSet, EventData*, unsigned timeout_ms);
  Result (*register_events)(Device, unsigned long long types, EventSet);
};

}  // namespace metp::nvml
