import com.sun.tools.attach.VirtualMachine;

import java.util.stream.Stream;

import javax.management.Attribute;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/**
 * Prints the attributes of an MBean of a JVM on this machine: NAME \t VALUE, a line each. It
 * attaches to the process, so the JVM needs no option and no port.
 *
 * java Attributes.java PID MBEAN
 */
public final class Attributes {
    private Attributes() {
    }

    public static void main(String[] args) throws Exception {
        VirtualMachine machine = VirtualMachine.attach(args[0]);
        JMXServiceURL url = new JMXServiceURL(machine.startLocalManagementAgent());
        machine.detach();
        try (JMXConnector connector = JMXConnectorFactory.connect(url)) {
            MBeanServerConnection server = connector.getMBeanServerConnection();
            ObjectName name = new ObjectName(args[1]);
            String[] names = Stream.of(server.getMBeanInfo(name).getAttributes())
                    .map(MBeanAttributeInfo::getName).toArray(String[]::new);
            // without those that fail
            for (Attribute one : server.getAttributes(name, names).asList()) {
                String value = String.valueOf(one.getValue()).replace('\n', ' ');
                System.out.println(one.getName() + "\t" + value);
            }
        }
    }
}
