import java.lang.management.ManagementFactory;
import java.util.Scanner;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

import com.sun.tools.attach.VirtualMachine;

/**
 * PID: for each line of standard input, a line with the attributes of that MBean of the JVM, as
 * NAME=VALUE with tabs between them.
 */
class Counters {
    public static void main(String[] args) throws Exception {
        VirtualMachine machine = VirtualMachine.attach(args[0]);
        JMXServiceURL address = new JMXServiceURL(machine.startLocalManagementAgent());
        machine.detach();
        try (var connector = JMXConnectorFactory.connect(address);
             Scanner lines = new Scanner(System.in)) {
            MBeanServerConnection server = connector.getMBeanServerConnection();
            while (lines.hasNextLine()) {
                ObjectName name = new ObjectName(lines.nextLine());
                StringBuilder out = new StringBuilder();
                if (server.isRegistered(name))
                    for (MBeanAttributeInfo one : server.getMBeanInfo(name).getAttributes())
                        out.append(one.getName()).append('=')
                            .append(server.getAttribute(name, one.getName())).append('\t');
                System.out.println(out);
                System.out.flush();
            }
        }
    }
}
